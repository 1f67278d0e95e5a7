// Package spelling finds the known word that a user may have meant: of a flag, a field of a
// configuration, a backend, a command. It owns nothing and has no state; any goroutine may call it.
// It is called for errors alone, and takes memory for two rows of the longer word.
package spelling
