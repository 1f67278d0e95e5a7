package archive

// Names for the tests in package archive_test.

const BlockSize = blockSize
