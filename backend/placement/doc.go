// Package placement lists the instances that a model's config asks for, each with its device, and
// chooses their processor cores by the host policies of the command line.
//
// Backends call Of when they start a model, and Of and Match when its instance groups change. A
// Placement keeps the config's group, which must not change. HostPolicies are validated once, at
// startup, and not changed. Errors for operators have Triton's texts. Any goroutine may call the
// package.
package placement
