package manual

// Names for the tests in package manual_test.

var Page = page
