// Package health is the subcommand `nereid health`, which asks a server whether it lives or is ready. Images and units have
// it as their health check, where there is neither curl nor a shell.
//
// It has no state, no lock and no goroutine, and keeps nothing.
//
// Callers: package cli.
package health
