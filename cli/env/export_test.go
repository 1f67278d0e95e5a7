package env

// Names for the tests in package env_test.

type Verified = verified
