package rest

// Names for the tests in package rest_test.

const WantInstances = wantInstances

var ReadInstances = readInstances
