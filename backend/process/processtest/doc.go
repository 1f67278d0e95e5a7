// Package processtest gives the tests of backend/process and of the packages below it a
// life without a process: the test writes what the process would, and reads what it is
// sent.
//
// A Peer is the other side of one channel; a Life is what the supervisor keeps for one
// process, and a Peer may have one after another. Host stands for the registry.
package processtest
