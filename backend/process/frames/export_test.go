package frames

// Names for the tests in package frames_test.

const (
	MaxHello    = maxHello
	MaxMapDepth = maxMapDepth
)

var (
	ParseParameters = parseParameters
	SkimMap         = skimMap
)
