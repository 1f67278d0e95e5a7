package python

import (
	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/kserve"
)

// Names for the tests in package python_test.

type Code = code

// NewCode returns the program of a model without a config.
func NewCode() *Code { return &Code{env: backend.Env{Config: &kserve.ModelConfig{}}} }
