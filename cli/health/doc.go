// Package health is the subcommand `nereid health`, which checks whether a server is live or ready.
// Images and systemd units use it as a health check where there is neither curl nor a shell. It has
// no state.
package health
