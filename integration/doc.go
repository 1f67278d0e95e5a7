// Package integration tests the real binary with real interpreters and the real
// tritonclient, as a user would run it. It has no code but tests.
package integration
