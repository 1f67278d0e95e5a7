package jinja

// Set is Meter.Set for values that no client has sent.
func (d *Dict) Set(name string, v Value) { NewMeter(Limits{}).Set(d, name, v) }

// Values returns the members by their names.
func (d *Dict) Values() map[string]Value {
	all := map[string]Value{}
	for _, one := range d.members {
		all[one.name] = one.value
	}
	return all
}

// Render renders with a meter of its own.
func (t *Template) Render(variables map[string]Value, limits Limits) (string, error) {
	return NewMeter(limits).Render(t, variables)
}
