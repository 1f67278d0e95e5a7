// Package cores says on which processor cores instances run, by the host policies of the
// command line, and binds their processes to them.
//
// HostPolicies are settings by the name of a policy and their own; PolicyName says which
// policy an instance has. They are validated once, at start, and not changed. Errors that
// operators see have Triton's texts.
//
// Nothing here has a state or a lock, and any goroutine may call it.
package cores
