package main

import "github.com/nereid-serving/nereid/server"

// logControl lets clients of the HTTP endpoint change the log.
type logControl struct{ settings *LogSettings }

var _ server.LogControl = logControl{}

func (c logControl) LogSettings() server.LogSettings {
	s := c.settings
	format := "default"
	if s.ISO8601() {
		format = "ISO8601"
	}
	return server.LogSettings{
		File: s.File(), Info: s.Info(), Warning: s.Warning(), Error: s.Error(), VerboseLevel: uint32(s.Verbose()), Format: format,
	}
}

func (c logControl) ChangeLogSettings(change func(*server.LogSettings)) {
	now := c.LogSettings()
	change(&now)
	s := c.settings
	s.SetInfo(now.Info)
	s.SetWarning(now.Warning)
	s.SetError(now.Error)
	s.SetVerbose(int(now.VerboseLevel))
	s.SetISO8601(now.Format == "ISO8601")
}

// grpcLogControl does the same for gRPC.
type grpcLogControl struct{ settings *LogSettings }

var _ server.GRPCLog = grpcLogControl{}

func (c grpcLogControl) Settings() server.GRPCLogSettings {
	s := logControl(c).LogSettings()
	return server.GRPCLogSettings{File: s.File, Info: s.Info, Warning: s.Warning, Error: s.Error, Verbose: s.VerboseLevel, Format: s.Format}
}

func (c grpcLogControl) Change(to server.GRPCLogSettings) {
	logControl(c).ChangeLogSettings(func(s *server.LogSettings) {
		s.Info, s.Warning, s.Error, s.VerboseLevel, s.Format = to.Info, to.Warning, to.Error, to.Verbose, to.Format
	})
}
