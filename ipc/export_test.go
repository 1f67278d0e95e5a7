package ipc

// Names for the tests in package ipc_test.

var (
	UpSize    = upSize
	Now       = now
	PutHeader = putHeader
	KindNames = kindNames
)
