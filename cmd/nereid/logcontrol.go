package main

import "github.com/nereid-serving/nereid/server"

// logControl lets clients see and change what is logged.
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
