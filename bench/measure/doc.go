// Package measure is what the programs of this folder share: rounds that are
// timed, distributions of times, servers that are started and ended, the processor time of processes, ports, and tables.
package measure
