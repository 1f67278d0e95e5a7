package clientshm

// Names for the tests in package clientshm_test.

const MostBytes = mostBytes
