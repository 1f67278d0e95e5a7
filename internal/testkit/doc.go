// Package testkit has helpers for the tests of all packages: a leak check for test binaries, waiting for
// a condition, reserved ports, and the Pythons to test with.
//
// A package whose tests start goroutines, processes or memory says
//
//	func TestMain(m *testing.M) { testkit.Main(m) }
//
// and Main fails the run if, half a minute after the last test, there is still
// one of these that was not there before the first:
//
//	goroutine    started by the tests or the code under test
//	file         an open descriptor of this process
//	process      a child, dead or alive, or a descendant that has lost its parent
//	name         an object in /dev/shm
//	mapping      memory of a memfd or of /dev/shm, or with the product's name
package testkit
