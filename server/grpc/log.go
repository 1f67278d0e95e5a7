package grpc

import (
	"context"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server"
)

// logSettings applies the request's settings and replies with all settings.
func (g *FrontEnd) logSettings(_ context.Context, q *kserve.LogSettingsRequest) (*kserve.LogSettingsResponse, error) {
	if len(q.GetSettings()) > 0 {
		var err error
		g.parts.Logging.ChangeLogSettings(func(s *server.LogSettings) { err = logChange(s, q.GetSettings()) })
		if err != nil {
			return nil, err
		}
	}
	s := g.parts.Logging.LogSettings()
	return &kserve.LogSettingsResponse{Settings: map[string]*kserve.LogSettingsResponse_SettingValue{
		"log_file":          logString(s.File),
		"log_info":          logBool(s.Info),
		"log_warning":       logBool(s.Warning),
		"log_error":         logBool(s.Error),
		"log_verbose_level": {ParameterChoice: &kserve.LogSettingsResponse_SettingValue_Uint32Param{Uint32Param: s.VerboseLevel}},
		"log_format":        logString(s.Format),
	}}, nil
}

// logChange applies the keys in Triton's order: the keys before a rejected one stay applied.
// Unknown keys are ignored.
func logChange(s *server.LogSettings, to map[string]*kserve.LogSettingsRequest_SettingValue) error {
	if _, ok := to["log_file"]; ok {
		return server.ErrLogFile
	}
	for _, f := range []struct {
		key  string
		flag *bool
	}{{"log_info", &s.Info}, {"log_warning", &s.Warning}, {"log_error", &s.Error}} {
		if v, ok := to[f.key]; ok {
			choice, ok := v.GetParameterChoice().(*kserve.LogSettingsRequest_SettingValue_BoolParam)
			if !ok {
				return infer.Errorf(infer.InvalidArg, "expect boolean for '%s'", f.key)
			}
			*f.flag = choice.BoolParam
		}
	}
	if v, ok := to["log_verbose_level"]; ok {
		choice, ok := v.GetParameterChoice().(*kserve.LogSettingsRequest_SettingValue_Uint32Param)
		if !ok {
			return infer.Errorf(infer.InvalidArg, "expect int32 for 'log_verbose_level'")
		}
		s.VerboseLevel = choice.Uint32Param
	}
	if v, ok := to["log_format"]; ok {
		choice, ok := v.GetParameterChoice().(*kserve.LogSettingsRequest_SettingValue_StringParam)
		if !ok {
			return infer.Errorf(infer.InvalidArg, "expect string for 'log_format'")
		}
		if f := choice.StringParam; f != server.LogFormatDefault && f != server.LogFormatISO8601 {
			return infer.Errorf(infer.InvalidArg, "invalid argument for log_format, got: %s", f)
		}
		s.Format = choice.StringParam
	}
	return nil
}

func logString(s string) *kserve.LogSettingsResponse_SettingValue {
	return &kserve.LogSettingsResponse_SettingValue{ParameterChoice: &kserve.LogSettingsResponse_SettingValue_StringParam{StringParam: s}}
}

func logBool(b bool) *kserve.LogSettingsResponse_SettingValue {
	return &kserve.LogSettingsResponse_SettingValue{ParameterChoice: &kserve.LogSettingsResponse_SettingValue_BoolParam{BoolParam: b}}
}
