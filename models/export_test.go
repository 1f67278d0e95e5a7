package models

import "github.com/nereid-serving/nereid/models/version"

// Lookup exports lookup for the tests in package models_test.

func (r *Registry) Lookup(name string, number int64) (*version.Version, error) {
	return r.lookup(name, number)
}
