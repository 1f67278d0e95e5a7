package batching

// NewPolicy is exported for the tests in package batching_test.

var NewPolicy = newPolicy
