"""Tutorial, step 1: an ordinary Keras program."""

import keras
from sklearn.datasets import load_digits

digits = load_digits()
images, labels = digits.data / 16.0, digits.target
x_train, y_train = images[:1400], labels[:1400]
x_test, y_test = images[1400:], labels[1400:]

model = keras.Sequential(
    [
        keras.Input((64,)),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
optimizer = keras.optimizers.Adam(0.002)
model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])

callbacks = []
model.fit(
    x_train,
    y_train,
    batch_size=32,
    epochs=15,
    validation_data=(x_test, y_test),
    callbacks=callbacks,
    verbose=2,
)

model.save("digits.keras")
print(f"Test accuracy {model.evaluate(x_test, y_test, verbose=0)[1]:.1%}")
