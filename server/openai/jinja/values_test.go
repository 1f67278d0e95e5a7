package jinja

// Set is Meter.Set without limits.
func (d *Dict) Set(name string, v Value) { NewMeter(Limits{}).Set(d, name, v) }

// Values returns the members by name.
func (d *Dict) Values() map[string]Value {
	all := map[string]Value{}
	for _, one := range d.members {
		all[one.name] = one.value
	}
	return all
}

// Render renders with its own meter.
func (t *Template) Render(variables map[string]Value, limits Limits) (string, error) {
	return NewMeter(limits).Render(t, variables)
}
