//go:build nereid_nostores

package main

import "github.com/nereid-serving/nereid"

// extensions is empty: this build supports no object stores and is a quarter smaller.
func extensions() []nereid.Extension { return nil }
