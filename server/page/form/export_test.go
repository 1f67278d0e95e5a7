package form

// Names for the tests in package form_test.

func (f *Field) ParseShape() (shape []int64, open int, err error) { return f.parseShape() }
