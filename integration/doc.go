// Package integration tests the real binary with real interpreters and the real tritonclient, as
// users run it. It contains only tests.
package integration
