//go:build race

package amplification

const raceEnabled = true
