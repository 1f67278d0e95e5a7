// Package panics ends a panic where it happened: in its request, life, load or
// connection, and not in the process.
//
// Every goroutine and every timer of the supervisor starts behind a boundary, which
// internal/boundaries_test.go checks. A boundary logs the panic with its stack,
// counts it in nereid_internal_errors_total and hands an error to the clean-up of
// the goroutine's owner, which answers the request, ends the life, fails the load or
// closes the connection.
//
// A boundary cannot know what the code below it held. So code below a boundary
// releases its locks by defer where it handles what stubs, clients and configs bring,
// or its owner gives up the guarded state as a whole: a life whose reader panicked
// ends with its channel, its loans and its locks' users.
//
// A fault on memory that another process has cut off is a panic like others, since
// goroutines behind a boundary have debug.SetPanicOnFault. What Go calls a fatal error
// is no panic and ends the process: concurrent access to a map, a deadlock of all
// goroutines, a stack or heap without end.
//
// A Limit bounds what another process may take. It does not count the time during which this
// process was stopped, suspended or throttled, as time.Timer does.
//
// States: none. The counters of panics are the process's own, since a panic can come
// where nothing has been handed down yet; they only grow.
//
// Locks: no function holds one while it calls f or failed. WaitGroup.mu and Limit.mu are leaves.
//
// Callers: any goroutine, at any time. failed runs in the goroutine that panicked, after
// its deferred functions: it may take the locks that these have released.
//
// Memory: without a panic a boundary costs a deferred call and no allocation in Run and
// Recover; Go, AfterFunc and Guard allocate the function that they return or start.
package panics
