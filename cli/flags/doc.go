// Package flags is the command line of the server: tritonserver's flags, and the product's own. It owns the table of flags,
// how a line is read, and Options, which a line becomes; --help, completion and the manual page describe what is in the table.
//
//	args ── scanFlags ──▶ one flag after another ── set ──▶ Options ── ServerOptions ──▶ nereid.Options
//	        getopt.go     the table, one file for each group           ▲
//	                                                        Defaults, the environment
//
// A line is read as the GNU C library's getopt_long reads it, and values as the C++ library's stoi: scripts rely on both. Texts
// about mistakes are Triton's word for word where Triton has one.
//
// States: none. Options are not changed once Parse has returned them, but for what a start learns of the machine (pools of devices).
// Goroutines, locks: none.
//
// Callers: package cli, on the goroutine of the program. Memory: nothing is kept.
package flags
