"""Classes of named fields: the part of `dataclasses` that we use, made in a twentieth of the time.

`dataclasses` imports `inspect` and compiles several functions for each class. That takes 0.5 ms a
class, and each process that a job starts makes 30 to 40 of them. Here all classes share their
methods. `dataclasses.fields` and its like work on them as on its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import asdict, dataclass, field, replace

    __all__ = ["asdict", "dataclass", "field", "replace"]
else:
    _MISSING = object()

    class _Field:
        def __init__(self, default: object, factory: object, compare: bool, shown: bool) -> None:
            self.default = default
            self.factory = factory
            self.compare = compare
            self.shown = shown

    class _Fields:
        """What `dataclasses` calls a class's fields, once somebody asks."""

        def __get__(self, _: object, owner: type) -> dict[str, Any]:
            import dataclasses

            rows = []
            for name, each in owner.__record__.items():
                ways = {"default": each.default, "default_factory": each.factory}
                said = {way: value for way, value in ways.items() if value is not _MISSING}
                row = dataclasses.field(compare=each.compare, repr=each.shown, **said)
                rows.append((name, owner.__annotations__[name], row))
            return dataclasses.make_dataclass(owner.__name__, rows).__dataclass_fields__

    def field(
        *,
        default: object = _MISSING,
        default_factory: object = _MISSING,
        compare: bool = True,
        repr: bool = True,
    ) -> Any:
        """See `dataclasses.field`."""
        return _Field(default, default_factory, compare, repr)

    def dataclass(cls: type | None = None, /, *, frozen: bool = False) -> Any:
        """See `dataclasses.dataclass`."""
        if cls is None:
            return lambda decorated: dataclass(decorated, frozen=frozen)
        own = vars(cls)
        fields = {}
        for name in cls.__annotations__:
            each = own.get(name, _MISSING)
            if not isinstance(each, _Field):
                each = _Field(each, _MISSING, True, True)
            elif each.default is _MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, each.default)
            fields[name] = each
        cls.__record__ = fields
        cls.__match_args__ = tuple(fields)
        cls.__dataclass_fields__ = _Fields()
        methods = {"__init__": _init, "__repr__": _repr, "__eq__": _eq, "__hash__": None}
        if frozen:
            methods |= {"__hash__": _hash, "__setattr__": _refuse, "__delattr__": _refuse}
        for name, method in methods.items():
            if own.get(name) is None:
                setattr(cls, name, method)
        return cls

    def replace(record: Any, /, **changes: object) -> Any:
        """See `dataclasses.replace`."""
        kept = {name: getattr(record, name) for name in record.__record__}
        return type(record)(**{**kept, **changes})

    def asdict(record: Any) -> dict[str, Any]:
        """See `dataclasses.asdict`."""
        return {name: _plain(getattr(record, name)) for name in record.__record__}

    def _plain(value: Any) -> Any:
        if hasattr(type(value), "__record__"):
            return asdict(value)
        if isinstance(value, (list, tuple)):
            plain = map(_plain, value)
            return type(value)(*plain) if hasattr(value, "_fields") else type(value)(plain)
        if isinstance(value, dict):
            return {_plain(key): _plain(each) for key, each in value.items()}
        return value

    def _init(self: Any, *values: object, **named: object) -> None:
        fields = self.__record__
        given = dict(zip(fields, values, strict=False))
        if len(values) > len(fields) or given.keys() & named.keys() or named.keys() - fields.keys():
            known = ", ".join(fields)
            raise TypeError(f"{type(self).__name__}() accepts each of these once: {known}")
        given |= named
        for name, each in fields.items():
            if name in given:
                value = given[name]
            elif each.factory is not _MISSING:
                value = each.factory()
            elif each.default is not _MISSING:
                value = each.default
            else:
                raise TypeError(f"{type(self).__name__}() needs {name}")
            self.__dict__[name] = value
        check = getattr(self, "__post_init__", None)
        if check is not None:
            check()

    def _repr(self: Any) -> str:
        shown = (name for name, each in self.__record__.items() if each.shown)
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__qualname__}({values})"

    def _key(self: Any) -> tuple[Any, ...]:
        fields = self.__record__.items()
        return tuple(getattr(self, name) for name, each in fields if each.compare)

    def _eq(self: Any, other: object) -> bool:
        return _key(self) == _key(other) if type(other) is type(self) else NotImplemented

    def _hash(self: Any) -> int:
        return hash(_key(self))

    def _refuse(self: Any, name: str, *_: object) -> None:
        raise AttributeError(f"cannot assign to field {name!r}")
