// Package processtest provides a life without a process to the tests of backend/process and its
// subpackages: the test writes the process's frames and reads the frames to it.
//
// A Peer is the other side of one channel. A Life is the supervisor's data for one process; a Peer
// may have one after another. Host is a fake registry.
package processtest
