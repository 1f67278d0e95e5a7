//go:build nereid_noclouds

package main

import "github.com/nereid-serving/nereid"

// extensions are none: this build reads no object store, and is a quarter smaller.
func extensions() []nereid.Extension { return nil }
