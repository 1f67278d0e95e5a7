// Package cores chooses the processor cores of instances by the host policies of the command line,
// and binds their processes to them.
//
// HostPolicies are validated once, at startup, and not changed. PolicyName returns the policy of an
// instance. Errors for operators have Triton's texts. Any goroutine may call the package.
package cores
