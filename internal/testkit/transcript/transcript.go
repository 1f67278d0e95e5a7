// Package transcript plays scripts and compares the effects with those recorded next to their
// steps.
package transcript

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

var update = flag.Bool("update-transcripts", false, "write the transcripts in testdata as they are")

// Play plays the files that match pattern and compares the effects with the recorded ones.
//
//	# a comment
//	= the name of a case
//	a step
//		an effect of the step
//
// Each case runs in a synctest bubble. start prepares it and returns the function that performs one
// step and returns its effects. The flag -update-transcripts records the effects.
func Play(t *testing.T, pattern string, start func(*testing.T) (step func(line string) (effects []string))) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files match %s: %v", pattern, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			head, cases, _ := strings.Cut(string(content), "\n= ")
			played := head
			for text := range strings.SplitSeq(cases, "\n= ") {
				played += "\n= " + playCase(t, text, start)
			}
			if *update {
				if err := os.WriteFile(file, []byte(played), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// playCase plays one case and returns it with its actual effects.
func playCase(t *testing.T, text string, start func(*testing.T) func(string) []string) string {
	name, script, _ := strings.Cut(text, "\n")
	var played strings.Builder
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			step := start(t)
			for line := range strings.Lines(script) {
				switch {
				case strings.HasPrefix(line, "\t"):
				case strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "":
					played.WriteString(line)
				default:
					played.WriteString(strings.TrimSuffix(line, "\n") + "\n")
					for _, effect := range step(strings.TrimSpace(line)) {
						played.WriteString("\t" + effect + "\n")
					}
				}
			}
		})
		if got := played.String(); strings.TrimSpace(got) != strings.TrimSpace(script) && !*update {
			t.Errorf("got\n%s\nwant\n%s", got, script)
		}
	})
	return name + "\n" + played.String()
}
