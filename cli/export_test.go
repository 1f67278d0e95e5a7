package cli

// Names for the tests in package cli_test.

const SignalBurst = signalBurst

var Run = run

var WatchSignals = watchSignals

// ReleaseStartup is releaseStartup.
var ReleaseStartup = releaseStartup
