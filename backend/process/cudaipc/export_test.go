package cudaipc

// Names for the tests in package cudaipc_test.

const MostLent = mostLent
