// Package flags is the command line of the server: tritonserver's flags and Nereid's own. It owns
// the settings table, the parser, and Options, its result. --help, completion, the manual page and
// the tables of docs/operations.md are made from the settings table.
//
//	args ── scanFlags ──▶ one flag after another ── set ──▶ Options ── ServerOptions ──▶ nereid.Options
//	        getopt.go     the table, one file for each group           ▲
//	                                                        Defaults, the environment
//
// A line is parsed like GNU getopt_long, and values of Triton's flags like C++ stoi, because
// scripts rely on both. Error texts are Triton's word for word where Triton has one.
//
// Options do not change once Parse has returned them, except for the sizes of device pools, which
// are set at startup.
package flags
