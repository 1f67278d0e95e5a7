// Package panics limits a panic to its request, life, load or connection, instead of the process.
//
// Every goroutine and every timer of the supervisor starts behind a boundary, which
// internal/boundaries_test.go checks. A boundary logs the panic with its stack, counts it in
// nereid_internal_errors_total and passes an error to the clean-up function of the goroutine's
// owner. That function fails the request, ends the life, fails the load or closes the connection.
//
// A boundary cannot know which locks and resources the code below it held. So that code releases
// its locks by defer where it handles data of stubs, clients and configs, or its owner gives up the
// guarded state as a whole: a life whose reader panicked ends with its channel, its loans and its
// locks' users.
//
// A fault on memory that another process has truncated is also such a panic, because goroutines
// behind a boundary have debug.SetPanicOnFault. Go's fatal errors are not panics and end the
// process: concurrent access to a map, a deadlock of all goroutines, exhaustion of stack or heap.
//
// A Limit limits the time of another process. Unlike time.Timer it does not count the time during
// which this process was stopped, suspended or throttled.
//
// The counters of panics are global, because a panic can happen before anything has been
// configured; they only grow.
//
// No function holds a lock while it calls f or failed. WaitGroup.mu and Limit.mu are leaves.
//
// Any goroutine may call the package at any time. failed runs in the goroutine that panicked, after
// its deferred functions, so it may take the locks that these have released.
//
// Without a panic, Run and Recover cost a deferred call and no allocation; Go, AfterFunc and Guard
// allocate the function that they return or start.
package panics
