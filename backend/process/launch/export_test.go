package launch

// Names for the tests in package launch_test.

const MostPrinted = mostPrinted

var (
	HoldsMark  = holdsMark
	OomFilesOf = oomFilesOf
)
