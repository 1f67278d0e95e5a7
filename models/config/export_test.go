package config

import "github.com/nereid-serving/nereid/kserve"

// Autofill and AssignGroups are exported for the tests in package config_test.

var Autofill = autofill

func (r Rules) AssignGroups(config *kserve.ModelConfig) { r.assignGroups(config) }
