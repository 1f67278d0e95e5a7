// Package configs lets arbitrary valid configs meet arbitrary requests and arbitrary
// answers of their models, through the packages from the client's socket down to an
// instance that follows a script. It has no code but tests.
package configs
