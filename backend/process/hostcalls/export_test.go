package hostcalls

// Names for the tests in package hostcalls_test.

var ParseVersion = parseVersion
