// Package testkit has helpers for the tests of all packages: a leak check for test binaries,
// waiting for a condition, reserved ports, and the Pythons to test with.
//
// A package whose tests start goroutines, processes or memory says
//
//	func TestMain(m *testing.M) { testkit.Main(m) }
//
// Main fails the run if, half a minute after the last test, one of these exists that did not exist
// before the first test:
//
//	goroutine    started by the tests or the code under test
//	file         an open descriptor of this process
//	process      a child, dead or alive, or an orphaned descendant
//	name         an object in /dev/shm
//	mapping      memory of a memfd or of /dev/shm, or with the product's name
package testkit
