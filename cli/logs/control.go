package logs

import "github.com/nereid-serving/nereid/server"

// Control lets clients see and change the log settings.
type Control struct{ Settings *Settings }

var _ server.LogControl = Control{}

func (c Control) LogSettings() server.LogSettings {
	s := c.Settings
	format := "default"
	if s.ISO8601() {
		format = "ISO8601"
	}
	return server.LogSettings{
		File: s.File(), Info: s.Info(), Warning: s.Warning(), Error: s.Error(), VerboseLevel: uint32(s.Verbose()), Format: format,
	}
}

func (c Control) ChangeLogSettings(change func(*server.LogSettings)) {
	now := c.LogSettings()
	change(&now)
	s := c.Settings
	s.SetInfo(now.Info)
	s.SetWarning(now.Warning)
	s.SetError(now.Error)
	s.SetVerbose(int(now.VerboseLevel))
	s.SetISO8601(now.Format == "ISO8601")
}
