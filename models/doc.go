// Package models knows which models exist, how each is described and which of
// them are loaded.
package models
