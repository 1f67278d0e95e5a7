package scheduler

// Names for the tests in package scheduler_test.

const Restful = restful
