// Package testkit has helpers for the tests of all packages: a leak check for test binaries,
// waiting for a condition, reserved ports, and the Pythons to test with.
//
// A package whose tests start goroutines or processes, or share memory, has this function:
//
//	func TestMain(m *testing.M) { testkit.Main(m) }
//
// Main fails the run if the tests leave goroutines, open files, processes or shared memory behind,
// as package leaks defines.
package testkit
