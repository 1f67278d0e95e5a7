package scheduler

// Restful is exported for the tests in package scheduler_test.

const Restful = restful
