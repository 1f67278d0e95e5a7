//go:build !nereid_nostores

package main

import (
	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/objectstore/providers"
)

// extensions returns the clients of object stores.
func extensions() []nereid.Extension {
	return []nereid.Extension{nereid.WithObjectStores(providers.Open)}
}
