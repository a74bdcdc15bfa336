(function () {
  var byId = function (id) { return document.getElementById(id); };
  var controls = ['area', 'severity', 'outcome', 'text'].map(byId);
  function filter() {
    var want = controls.map(function (control) { return control.value.toLowerCase(); });
    var shown = 0;
    document.querySelectorAll('[data-id]').forEach(function (element) {
      var data = element.dataset;
      var fits = (!want[0] || data.id.split('.')[0] === want[0]) &&
        (!want[1] || data.severity === want[1]) &&
        (!want[2] || data.outcomes.split(' ').indexOf(want[2]) >= 0) &&
        (!want[3] || (data.id + ' ' + data.text).toLowerCase().indexOf(want[3]) >= 0);
      element.hidden = !fits;
      if (fits && element.tagName === 'TR') { shown += 1; }
    });
    byId('shown').textContent = shown + ' checks';
  }
  function open() {
    var target = location.hash && byId(location.hash.slice(1));
    if (target && target.tagName === 'DETAILS') { target.hidden = false; target.open = true; target.scrollIntoView(); }
  }
  controls.forEach(function (control) { control.addEventListener('input', filter); });
  window.addEventListener('hashchange', open);
  filter();
  open();
})();
