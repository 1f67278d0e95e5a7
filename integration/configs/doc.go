// Package configs tests arbitrary valid configs with arbitrary requests and arbitrary responses. It
// runs every package from the client's socket to an instance that follows a script. The package
// contains only tests.
package configs
