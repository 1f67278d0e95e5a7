package batching

// Names for the tests in package batching_test.

var NewPolicy = newPolicy
